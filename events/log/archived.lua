-- Note how far the archive is, and trim what it holds. Only ever forward, only in its epoch, only the log it belongs to.
-- ARGV[1], ARGV[2] epoch and n of the watermark; ARGV[3] how many of the newest entries to keep; ARGV[4] identity of the
-- log; ARGV[5], ARGV[6] an erasure (0, -1: none): while entries before it are there, all that is archived goes. Answers
-- how many entries it removed: at most 10,000 a call and what an erasure takes, so call it until that is none.

local meta, n = read_meta(), tonumber(ARGV[2])
if not meta or meta.epoch ~= ARGV[1] or meta.log ~= ARGV[4] then
    return 0
end
-- trimmed first: at its memory limit Redis lets a script go on only after a write that takes none
local last = math.min(n, meta.next - 1 - tonumber(ARGV[3]))
local removed = redis.call('XTRIM', LOG, 'MINID', '~', meta.epoch .. '-' .. math.max(0, last + 1))
-- all that is archived and not only what was erased: a node that keeps an entry keeps the bytes of those that went
local erased = tonumber(ARGV[6])
if ARGV[5] == meta.epoch and erased <= n then
    local first = redis.call('XRANGE', LOG, '-', '+', 'COUNT', 1)[1]
    if first and tonumber(string.match(first[1], '-(%d+)$')) < erased then
        removed = removed + redis.call('XTRIM', LOG, 'MINID', '=', meta.epoch .. '-' .. (n + 1))
    end
end
if n > meta.archived then
    redis.call('HSET', META, 'archived', ARGV[2])
end
return removed
