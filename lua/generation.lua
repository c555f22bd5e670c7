#!lua flags=allow-oom
-- generation.lua: give a new generation, greater than any before and less than any later one.
--
-- Returns  {now, generation}
-- @include prelude master life renewed record

return {NOW, next_generation(1)}
