#!lua flags=no-writes
-- next.lua: tell what there is to do now, and when there will be more.
--
-- Returns  the poll (shared/poll.lua); changes nothing
-- @include prelude poll

return poll()
