/* The sixteen values of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3); code 8 is -0.0. */
#pragma once
CBQ_TABLE float cbq_e2m1_values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
