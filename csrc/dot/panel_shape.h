/* The shape of a panel (CBQ_PANEL_VECTORS vectors hold four codes of each of its rows), and of words side by side. */
#pragma once
#define CBQ_PANEL_ROWS (CBQ_LANES * CBQ_PANEL_VECTORS)
#define CBQ_DOT_ROWS (4 * CBQ_LANES / CBQ_W) /* rows whose words fill a vector, a lane for four codes */
enum { V = CBQ_PANEL_VECTORS, QUAD = 4 * CBQ_PANEL_ROWS }; /* bytes of four codes of each row */
