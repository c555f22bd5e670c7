-- Fixed-width big-endian integers. Compared as numbers only: Lua orders texts by the server's locale.
local function six(number) return struct.pack('>I6', number) end
local function number_at(bytes, first, last)
  return (struct.unpack('>I' .. (last - first + 1), bytes, first))
end
