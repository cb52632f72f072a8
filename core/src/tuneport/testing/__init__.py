"""The kit that plugin authors (and we) test with.

    from tuneport.testing import FrameworkTests

    class TestAcme(FrameworkTests):
        framework = "acme"
        requests = {"acme/sft": {"model": "org/model", "train_data": "org/data", "profile": "h200:8"}}
        golden = Path(__file__).parent / "golden"

`check_plugin` runs everything that `tp plugin check` does and yields one `Check` after another:

    for check in check_plugin("path/to/the/project", Options(times=5)):
        assert not check.problems

`try_policy` asks a policy about a request. `no_side_effects` and `imports` show what a block of code touches
and imports. What is named here is kept as the hooks are: names and arguments are only ever added.
"""

from tuneport.testing.checking import Options, check_plugin
from tuneport.testing.conformance import Check
from tuneport.testing.frameworks import FrameworkTests
from tuneport.testing.policies import try_policy
from tuneport.testing.purity import imports, no_side_effects

__all__ = ["Check", "FrameworkTests", "Options", "check_plugin", "imports", "no_side_effects", "try_policy"]
