#!lua flags=no-writes
-- next.lua: the poll: what there is to do now, and when there will be more.
--
-- Returns  the poll (shared/poll.lua); changes nothing
-- @include keys clock poll

return poll()
