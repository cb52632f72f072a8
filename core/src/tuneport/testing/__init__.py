"""The kit that plugin authors (and we) test a framework with.

from tuneport.testing import FrameworkTests

class TestAcme(FrameworkTests):
    framework = "acme"
    requests = {"acme/sft": {"model": "org/model", "train_data": "org/data", "profile": "h200:8"}}
    golden = Path(__file__).parent / "golden"
"""

from tuneport.testing.frameworks import FrameworkTests
from tuneport.testing.purity import no_side_effects

__all__ = ["FrameworkTests", "no_side_effects"]
