"""Names for which the health service answers beside the services, for the probes of whoever runs the scheduler."""

from __future__ import annotations

#: A name for which the health service answers, like a service, for probes that may restart the process. It is SERVING as
#: long as the event loop answers, in every role, and also when the journal cannot be written: a restart would not help.
LIVENESS = "liveness"
#: The same for probes that ask whether the scheduler does its part: it is active and serves, or it is a standby that can
#: read the store, and so could take over. The name "" would not do, because a standby serves nobody.
READINESS = "readiness"
PROBES = (LIVENESS, READINESS)
