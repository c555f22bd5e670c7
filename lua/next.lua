#!lua flags=no-writes
-- next.lua: return the poll: what is due now, and when more will be.
--
-- Returns  the poll (shared/poll.lua); read-only
-- @include prelude poll

return poll()
