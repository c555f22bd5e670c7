-- Commands over many arguments, in chunks: unpack() fails near 8,000 values.
local CHUNK = 2000
local MAX_BATCH = 1000

-- Return a requested count, clamped to 0..MAX_BATCH.
local function limited(count) return math.max(0, math.min(tonumber(count), MAX_BATCH)) end

local function zadd(key, scores_and_ids)
  for i = 1, #scores_and_ids, CHUNK do
    redis.call('ZADD', key, unpack(scores_and_ids, i, math.min(i + CHUNK - 1, #scores_and_ids)))
  end
end

local function zrem(key, ids)
  for i = 1, #ids, CHUNK do
    redis.call('ZREM', key, unpack(ids, i, math.min(i + CHUNK - 1, #ids)))
  end
end

local function hset(key, fields_and_values)
  for i = 1, #fields_and_values, CHUNK do
    redis.call('HSET', key, unpack(fields_and_values, i, math.min(i + CHUNK - 1, #fields_and_values)))
  end
end

-- HSET for a hash that batches are read from. The server keeps a small hash as a list and scans it for
-- every id of a batch; one long value, deleted at once, converts it to a table for good.
local LIST_IS_QUICK, TOO_LONG_FOR_A_LIST = 32, string.rep(' ', 65)
local function hset_as_table(key, fields_and_values)
  if #fields_and_values <= 2 * LIST_IS_QUICK then return hset(key, fields_and_values) end
  redis.call('HSET', key, '', TOO_LONG_FOR_A_LIST)
  hset(key, fields_and_values)
  redis.call('HDEL', key, '')
end

local function hdel(key, fields)
  for i = 1, #fields, CHUNK do
    redis.call('HDEL', key, unpack(fields, i, math.min(i + CHUNK - 1, #fields)))
  end
end

-- One value per field, in order, false where there is none; at most MAX_BATCH fields.
local function hmget(key, fields)
  if #fields == 0 then return {} end
  return redis.call('HMGET', key, unpack(fields))
end

-- The arguments from ARGV[first] on: `count` of them.
local function arguments(first, count)
  local taken = {}
  for i = 1, count do taken[i] = ARGV[first + i - 1] end
  return taken
end

-- The first field of each of `count` rows of `width` arguments, which begin at ARGV[first].
local function first_fields(first, width, count)
  local taken = {}
  for i = 1, count do taken[i] = ARGV[first + (i - 1) * width] end
  return taken
end
