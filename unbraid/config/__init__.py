"""Configurations: strict frozen records that read from and write to TOML, and the sweeps over them."""

from unbraid.config.documentation import add_parameters, field_docs
from unbraid.config.registry import Registry, Switches, name_of, switches, tagged
from unbraid.config.schema import (
    Config,
    JsonDict,
    PerMember,
    PerMemberFloat,
    R,
    check,
    per_member_fields,
    suggest,
)
from unbraid.config.sweep import REPLICATE, REPLICATES, combine, flatten, merge, task_of
from unbraid.config.toml import is_encodable, parse_override, read_toml, to_toml

__all__ = [
    "REPLICATE",
    "REPLICATES",
    "Config",
    "JsonDict",
    "PerMember",
    "PerMemberFloat",
    "R",
    "Registry",
    "Switches",
    "add_parameters",
    "check",
    "combine",
    "field_docs",
    "flatten",
    "is_encodable",
    "merge",
    "name_of",
    "parse_override",
    "per_member_fields",
    "read_toml",
    "suggest",
    "switches",
    "tagged",
    "task_of",
    "to_toml",
]
