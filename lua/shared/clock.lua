-- The server's clock in ms. NOW is what has wholly passed: an instant is due when it is <= NOW.
-- NOW_UP is rounded up: a delay counts from there, so that nothing is ever early by a fraction.
-- ARGV[1]  '' for the server's time; tests alone give ms
local NOW, NOW_UP
if ARGV[1] ~= '' then
  NOW = tonumber(ARGV[1])
  NOW_UP = NOW
else
  local time = redis.call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
  NOW_UP = time[1] * 1000 + math.ceil(time[2] / 1000)
end

-- An instant as the producer gave it: '+15000' after now, or ms since the epoch (past: due now).
local function resolve(given)
  if string.byte(given) == 43 then return NOW_UP + tonumber(string.sub(given, 2)) end
  return math.max(tonumber(given), 0)
end
