"""The kinds of state document that the writer knows, by name. A new one is a module and a line
here: see docs/dialects.md.
"""

from __future__ import annotations

from writer.core.dialect import Dialects
from writer.dialects.codemation import Codemation
from writer.dialects.generic import Generic
from writer.dialects.pi_workflows import PiWorkflows

DIALECTS: Dialects = {dialect.name: dialect for dialect in (Generic(), PiWorkflows(), Codemation())}
