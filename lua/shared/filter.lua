-- The filter of cold ids: an array of words of 32 bits. An id has up to four bits of one word: if all are
-- set it may be cold, else it is not. So an id is one part of a command; bits anywhere would be four.
local find_in_filter, add_to_filter

do
  local most = 250  -- ids of a command

  -- Return the word of an id, as BITFIELD names it, and its bits: 32 and 20 bits of a digest decide.
  local function place_of(id, words)
    local digest = tonumber(string.sub(redis.sha1hex(id), 1, 13), 16)
    local rest = digest % 1048576
    local bits = bit.bor(bit.lshift(1, rest), bit.lshift(1, bit.rshift(rest, 5)),
      bit.lshift(1, bit.rshift(rest, 10)), bit.lshift(1, bit.rshift(rest, 15)))
    return string.format('#%d', (digest - rest) / 1048576 % words), bits
  end

  -- Give `each` of ids[first..last] its word's name, its bits, and what the word is.
  local function with_words(key, ids, first, last, words, each)
    local names, bits, command, n = {}, {}, {}, 0
    for i = first, last do
      names[i], bits[i] = place_of(ids[i], words)
      command[n + 1], command[n + 2], command[n + 3] = 'GET', 'i32', names[i]
      n = n + 3
    end
    local found = redis.call('BITFIELD', key, unpack(command))
    for i = first, last do each(ids[i], names[i], bits[i], found[i - first + 1]) end
  end

  -- Return those of the ids that a filter of so many words may have.
  function find_in_filter(key, ids, words)
    local found = {}
    for first = 1, #ids, most do
      with_words(key, ids, first, math.min(first + most - 1, #ids), words, function(id, _, bits, word)
        if bit.band(word, bits) == bits then found[#found + 1] = id end
      end)
    end
    return found
  end

  local function add(key, ids, first, last, words)
    local now, command, n, changed = {}, {}, 0, 0
    with_words(key, ids, first, last, words, function(_, name, bits, word)
      word = now[name] or word
      local whole = bit.bor(word, bits)
      if whole == word then return end
      now[name], changed = whole, changed + 1
      command[n + 1], command[n + 2], command[n + 3], command[n + 4] = 'SET', 'i32', name, whole
      n = n + 4
    end)
    if n > 0 then redis.call('BITFIELD', key, unpack(command)) end
    return changed
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
