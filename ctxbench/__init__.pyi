"""Types of what `import ctxbench` has, for type checkers and editors: what is imported on first use, and by plugins."""

from ctxbench.api import Run as Run
from ctxbench.api import load as load
from ctxbench.api import run as run
from ctxbench.base.errors import UsageError as UsageError
from ctxbench.plugins.audit.card import card as card
from ctxbench.plugins.audit.function import audit as audit
from ctxbench.plugins.check.function import check as check
from ctxbench.plugins.choose.function import choose as choose
from ctxbench.plugins.compare.function import compare as compare
from ctxbench.plugins.history.function import history as history
from ctxbench.plugins.memory.function import predict_memory as predict_memory
from ctxbench.plugins.predict.function import predict_time as predict_time
from ctxbench.plugins.profile.function import profile as profile
from ctxbench.plugins.show.function import show as show
from ctxbench.plugins.verify.function import verify as verify
from ctxbench.registry import register as register
from ctxbench.report.difference import diff as diff
