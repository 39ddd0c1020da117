"""An algorithm that counts frames and learns nothing."""
