"""What stands in the place of others' functions: in tables of them too, and in modules that let nothing be set."""

from __future__ import annotations

from types import SimpleNamespace

from torch._inductor import config

from cermet.patching import replace, replacing


def test_a_method_is_replaced_in_the_table_of_its_class():
    """Where Dynamo finds those of its variables since torch 2.14."""

    class Variable:
        def method_size(self) -> int:
            return 1

        def method_stride(self) -> int:
            return 3

        tp_methods = {"size": SimpleNamespace(handler=method_size), "stride": SimpleNamespace(handler=method_stride)}

    for _ in range(2):
        replace(Variable, "method_size", lambda theirs: lambda self: theirs(self) + 1)
    variable = Variable()
    assert variable.method_size() == Variable.tp_methods["size"].handler(variable) == 2
    assert variable.method_stride() == Variable.tp_methods["stride"].handler(variable) == 3


def test_what_is_no_setting_of_a_module_of_settings_is_replaced():
    before = config._save_config_ignore
    with replacing(config, {"_save_config_ignore": [], "no_such_name": 1}):
        assert config._save_config_ignore == [] and not hasattr(config, "no_such_name")
    assert config._save_config_ignore is before
