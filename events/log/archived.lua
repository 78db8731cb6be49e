-- Note how far the archive is: ARGV[1], ARGV[2] = epoch and n of the watermark. Only ever forward, only in its epoch.
-- Answers n of the next entry, or nil when another epoch is open.

local meta = read_meta()
if not meta or meta.epoch ~= ARGV[1] then
    return false
end
if tonumber(ARGV[2]) > meta.archived then
    redis.call('HSET', META, 'archived', ARGV[2])
end
return meta.next
