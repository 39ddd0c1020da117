"""Mathematics and storage of learning: no sockets, no processes, no clocks."""
