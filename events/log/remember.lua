-- Remember what the archive knows of ids, attempts and numbers, where the log has forgotten it.
--
-- ARGV[1] epoch and ARGV[2] turn of the log when the archive was asked; ARGV[3] msgpack {field of a seen hash = value}
-- ARGV[4] identity of the log; ARGV[5] entries that the current hash may hold
--
-- Answers how many fields were added, or -1 when there is nothing more to do: the log is closed, or goes on without them.

local meta = read_meta()
if fence(meta, stream_info(), ARGV[4]) or meta.epoch ~= ARGV[1] or meta.turn > tonumber(ARGV[2]) + 1 then
    return -1 -- as in append: both hashes may have changed places since, and what was newer be forgotten
end

local current, added = meta.turn % 2 + 1, 0
for name, value in pairs(cmsgpack.unpack(ARGV[3])) do
    if meta.seen[current] + added >= tonumber(ARGV[5]) then
        break
    end
    if redis.call('HEXISTS', SEEN[3 - current], name) == 0 then
        added = added + redis.call('HSETNX', SEEN[current], name, value)
    end
end
if added == 0 and meta.seen[current] >= tonumber(ARGV[5]) then
    return -1
end
redis.call('HSET', META, current == 1 and 'seen_a' or 'seen_b', meta.seen[current] + added)
return added
