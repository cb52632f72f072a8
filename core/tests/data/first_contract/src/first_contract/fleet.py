from tuneport.errors import Unavailable
from tuneport.fleets.protocol import Capabilities


class Fleet:
    def __init__(self, settings):
        self.name = "first-fleet"

    def capabilities(self):
        return Capabilities("first-fleet", "first-fleet", True, None, ("venv",))

    def render(self, plan, key):
        return {"key": key}

    def submit(self, request, key):
        raise Unavailable("this fleet runs nothing", code="first-nothing")

    def find(self, key):
        return None

    def poll(self, handles):
        return {}

    def logs(self, handle, *, role, since, follow):
        return iter(())

    def cancel(self, handle):
        return None
