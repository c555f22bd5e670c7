-- Fixed-width big-endian integers: equal widths compare as text in the order of their numbers.
local function six(number) return struct.pack('>I6', number) end
local function number_at(bytes, first, last)
  return (struct.unpack('>I' .. (last - first + 1), bytes, first))
end
