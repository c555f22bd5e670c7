-- The filter of cold ids: an array of words of 32 bits. An id has up to four bits of one word: if all are
-- set it may be cold, else it is not. So an id is one part of a command; bits anywhere would be four.
local find_in_filter, add_to_filter

do
  local most = 250  -- ids of a command
  local sub, format, sha1hex = string.sub, string.format, redis.sha1hex  -- here: looked up for each id
  local bor, band, lshift, rshift = bit.bor, bit.band, bit.lshift, bit.rshift

  -- Return the word of an id, as BITFIELD names it, and its bits: 32 and 20 bits of a digest decide.
  local function place_of(id, words)
    local digest = tonumber(sub(sha1hex(id), 1, 13), 16)
    local rest = digest % 1048576
    local bits = bor(lshift(1, rest), lshift(1, rshift(rest, 5)), lshift(1, rshift(rest, 10)),
      lshift(1, rshift(rest, 15)))
    return format('#%d', (digest - rest) / 1048576 % words), bits
  end

  -- Return the names of the words of ids[first..last], the bits of these ids, and what the words are.
  local function read_words(key, ids, first, last, words)
    local names, bits, command, n = {}, {}, {}, 0
    for i = 1, last - first + 1 do
      names[i], bits[i] = place_of(ids[first + i - 1], words)
      command[n + 1], command[n + 2], command[n + 3] = 'GET', 'i32', names[i]
      n = n + 3
    end
    return names, bits, redis.call('BITFIELD', key, unpack(command))
  end

  -- Return those of the ids that a filter of so many words may have.
  function find_in_filter(key, ids, words)
    local found = {}
    for first = 1, #ids, most do
      local _, bits, now = read_words(key, ids, first, math.min(first + most - 1, #ids), words)
      for i = 1, #bits do
        if band(now[i], bits[i]) == bits[i] then found[#found + 1] = ids[first + i - 1] end
      end
    end
    return found
  end

  local function add(key, ids, first, last, words)
    local names, bits, now = read_words(key, ids, first, last, words)
    local written, command, n = {}, {}, 0
    for i, name in ipairs(names) do
      local word = written[name] or now[i]
      local whole = bor(word, bits[i])
      if whole ~= word then
        written[name] = whole
        command[n + 1], command[n + 2], command[n + 3], command[n + 4] = 'SET', 'i32', name, whole
        n = n + 4
      end
    end
    if n > 0 then redis.call('BITFIELD', key, unpack(command)) end
    return n / 4
  end

  -- Add ids to a filter; return how many it did not seem to have.
  function add_to_filter(key, ids, words)
    local changed = 0
    for first = 1, #ids, most do
      changed = changed + add(key, ids, first, math.min(first + most - 1, #ids), words)
    end
    return changed
  end
end
