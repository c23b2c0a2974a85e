"""Each call of the engine as a value: its SQL, its parameters, how to read the reply.

Nothing here does any I/O. A runner executes `sql` with `params` and gives the rows to `read`, or an
error's SQLSTATE, message and detail to `explain`; so any driver can run a Statement.
"""

# ruff: noqa: F403 (all of them, under the one name by which they are asked for)
from headrace.statements.administering import *
from headrace.statements.base import *
from headrace.statements.checkpointing import *
from headrace.statements.looking import *
from headrace.statements.metering import *
from headrace.statements.publishing import *
from headrace.statements.queueing import *
from headrace.statements.scheduling import *
from headrace.statements.tokens import *
from headrace.statements.watching import *
from headrace.statements.working import *
