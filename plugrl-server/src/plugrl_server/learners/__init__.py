"""The processes that learn together: what tells them what to do, what they do, and how they are started."""
