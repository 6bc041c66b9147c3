"""HTTP service and web page (the ``serve`` extra): ``blockxmc serve DIR...``; docs/service.md has the whole of it."""
