-- The keys of one shard. Every script is given all of them, in this order, all with one hash tag.
local PENDING, READY, SUSPECT, UNACK, RETRY, DEAD =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ENVELOPES, FLIGHT, JOURNAL, META = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local MEMORY, FORGET, WAKE = KEYS[11], KEYS[12], KEYS[13]
