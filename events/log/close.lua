-- Close the partition for every epoch before ARGV[1], which SQL has opened: what recovery looks at grows no more.
-- Answers the epoch that was open, or ''.

local open = redis.pcall('HGET', META, 'epoch')
if type(open) ~= 'string' then
    return ''
end
if (tonumber(open) or 0) < tonumber(ARGV[1]) then
    redis.call('HDEL', META, 'server') -- deleting works at the memory limit, too
end
return open
