"""HTTP service and web page (the ``serve`` extra): ``blockxmc serve DIR...``; docs/howto/serving.md has the whole of it."""
