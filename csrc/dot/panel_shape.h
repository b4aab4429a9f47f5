/* The shape of a panel: CBQ_PANEL_VECTORS vectors hold four codes of each of its rows. */
#pragma once
#define CBQ_PANEL_ROWS (CBQ_LANES * CBQ_PANEL_VECTORS)
enum { V = CBQ_PANEL_VECTORS, QUAD = 4 * CBQ_PANEL_ROWS }; /* bytes of four codes of each row */
