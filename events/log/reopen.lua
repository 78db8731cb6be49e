-- Open a new epoch: a new stream with what survived of the old one behind the archive's watermark. All or nothing.
--
-- Nothing in here may raise once the first key is touched: an error does not undo what was written before it.
--
-- KEYS[5] stream of foreign entries, KEYS[6] where the old log is put aside meanwhile
-- ARGV[1] the new epoch
-- ARGV[2] msgpack {epoch = n it ended at}: what the archive holds; entries behind are survivors
-- ARGV[3] msgpack {id = 'foreign' | 'archived' | 'refused'}: entries that stay behind (events/log/survivors.py)
-- ARGV[4] 1 when the archive holds nothing of this partition, so that nothing is forgotten
-- ARGV[5] identity of the log
-- ARGV[6] msgpack {field of a seen hash = value}: attempts and numbers, as they are after the survivors
-- ARGV[7] the epoch that was closed before anybody looked at the survivors, or ''
--
-- Answers {'OTHER', identity} when another log is here, {'LATE', epoch} when another epoch was opened meanwhile, else
-- {'OPEN', survivors, foreign entries}.

local epoch = ARGV[1]
local ends = cmsgpack.unpack(ARGV[2])
local skipped = cmsgpack.unpack(ARGV[3])
local seeds = cmsgpack.unpack(ARGV[6])
local FOREIGN, ASIDE = KEYS[5], KEYS[6]
local BATCH = 500
local MOST_FIELDS = 100 -- names and values; an event of ours has fewer

local holder = redis.pcall('HGET', META, 'log')
if type(holder) == 'string' and holder ~= ARGV[5] then
    return { 'OTHER', holder }
end
local open = redis.pcall('HGET', META, 'epoch')
if type(open) == 'string' and (open ~= ARGV[7] or (tonumber(open) or 0) >= tonumber(epoch)) then
    return { 'LATE', open }
end

local function field_map(flat)
    local map = {}
    if #flat > MOST_FIELDS then
        return map
    end
    for i = 1, #flat, 2 do
        map[flat[i]] = flat[i + 1]
    end
    return map
end

local function ours(event)
    return event.id and event.type and event.org and event.time and event.key and event.digest
end

local function archived(id)
    local of, n = string.match(id, '^(%d+)-(%d+)$')
    return ends[of] and tonumber(n) <= ends[of]
end

local n, foreign = 0, 0
local seen = SEEN[1]

local function carry_over(id, flat)
    local event = field_map(flat)
    if skipped[id] == 'foreign' or not ours(event) then
        redis.pcall('XADD', FOREIGN, 'MAXLEN', '~', 10000, '*', 'entry', id, unpack(flat, 1, math.min(#flat, MOST_FIELDS)))
        foreign = foreign + 1
    elseif not archived(id) and not skipped[id] then
        redis.call('XADD', LOG, epoch .. '-*', unpack(flat))
        redis.call('HSET', seen, 'i' .. event.org .. SEP .. event.key .. SEP .. event.id, n .. ' ' .. event.digest)
        n = n + 1
    end
end

redis.call('UNLINK', META, KEYS[3], KEYS[4])
if redis.call('TYPE', ASIDE).ok == 'stream' then
    redis.call('UNLINK', LOG) -- an unfinished copy: with meta gone, nobody has appended since
elseif redis.call('EXISTS', LOG) == 1 then
    redis.call('RENAME', LOG, ASIDE)
end
if redis.call('TYPE', ASIDE).ok == 'stream' then
    local from = '-'
    repeat
        local batch = redis.call('XRANGE', ASIDE, from, '+', 'COUNT', BATCH)
        for _, entry in ipairs(batch) do
            carry_over(entry[1], entry[2])
        end
        from = #batch > 0 and '(' .. batch[#batch][1]
    until #batch < BATCH
    redis.call('UNLINK', ASIDE)
end
for name, value in pairs(seeds) do
    redis.call('HSET', seen, name, value)
end
redis.call('HSET', META, 'epoch', epoch, 'next', n, 'server', server_id(), 'archived', -1, 'complete', ARGV[4],
    'turn', 0, 'older', -1, 'seen_a', redis.call('HLEN', seen), 'seen_b', 0, 'log', ARGV[5])
return { 'OPEN', n, foreign }
