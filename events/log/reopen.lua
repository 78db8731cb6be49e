-- Open a new epoch: a new stream with what survived of the old one behind the archive's watermark, in steps, so that the
-- server can answer others meanwhile. Until the last step the log is closed; broken off, it is begun anew.
--
-- Nothing in here may raise once the first key is touched: an error does not undo what was written before it. (Each step
-- first deletes something: at its memory limit Redis lets a script go on only after a write that takes no memory.)
--
-- KEYS[5] stream of foreign entries, KEYS[6] where the old log is put aside meanwhile
-- ARGV[1] the new epoch
-- ARGV[2] msgpack {epoch = n it ended at}: what the archive holds; entries behind are survivors
-- ARGV[3] msgpack {id = 'foreign' | 'archived' | 'refused'}: entries that stay behind (events/log/survivors.py)
-- ARGV[4] 1 when the archive holds nothing of this partition, so that nothing is forgotten
-- ARGV[5] identity of the log
-- ARGV[6] msgpack {field of a seen hash = value}: attempts and numbers, as they are after the survivors; for the last step
-- ARGV[7] the epoch that was closed before anybody looked at the survivors, or ''
-- ARGV[8] the step: '-' the first, '(<id>' those that follow the entry, '' the last; ARGV[9] entries a step looks at
--
-- Answers {'OTHER', identity} when another log is here, {'LATE', epoch} when somebody else was here meanwhile, else
-- {'STEP', next step, survivors so far, foreign entries of this step}, after the last one {'OPEN', '', survivors, 0}.

local epoch = ARGV[1]
local ends = cmsgpack.unpack(ARGV[2])
local skipped = cmsgpack.unpack(ARGV[3])
local seeds = cmsgpack.unpack(ARGV[6])
local FOREIGN, ASIDE = KEYS[5], KEYS[6]
local STEP, BATCH = ARGV[8], 500
local MOST_FIELDS = 100 -- names and values; an event of ours has fewer

local holder = redis.pcall('HGET', META, 'log')
if type(holder) == 'string' and holder ~= ARGV[5] then
    return { 'OTHER', holder }
end
local open, opening = unpack(redis.pcall('HMGET', META, 'epoch', 'opening'))

local function late()
    if STEP ~= '-' then
        return opening ~= epoch
    end
    return type(open) == 'string' and (open ~= ARGV[7] or (tonumber(open) or 0) >= tonumber(epoch))
        or type(opening) == 'string' and (tonumber(opening) or 0) >= tonumber(epoch)
end

if late() then
    return { 'LATE', opening or open or '' }
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

local foreign, broken = 0, false
local seen = SEEN[1]

if STEP == '-' then
    redis.call('UNLINK', META, KEYS[3], KEYS[4])
    if redis.call('TYPE', ASIDE).ok == 'stream' then
        redis.call('UNLINK', LOG) -- an unfinished copy: with meta gone, nobody has appended since
    elseif redis.call('EXISTS', LOG) == 1 then
        redis.call('RENAME', LOG, ASIDE)
    end
    redis.call('HSET', META, 'opening', epoch, 'log', ARGV[5], 'copied', 0)
else
    redis.call('HDEL', META, 'nothing')
end
local n = tonumber(redis.call('HGET', META, 'copied'))

local function carry_over(id, flat)
    local event = field_map(flat)
    if skipped[id] == 'foreign' or not ours(event) then
        redis.pcall('XADD', FOREIGN, 'MAXLEN', '~', 10000, '*', 'entry', id, unpack(flat, 1, math.min(#flat, MOST_FIELDS)))
        foreign = foreign + 1
    elseif not archived(id) and not skipped[id] then
        if redis.pcall('XADD', LOG, epoch .. '-*', unpack(flat)).err then
            broken = true -- somebody else wrote to the copy
            return
        end
        redis.call('HSET', seen, 'i' .. event.org .. SEP .. event.key .. SEP .. event.id, n .. ' ' .. event.digest)
        n = n + 1
    end
end

if STEP ~= '' then
    local from, left = STEP, tonumber(ARGV[9])
    while from and left > 0 and redis.call('TYPE', ASIDE).ok == 'stream' do
        local batch = redis.call('XRANGE', ASIDE, from, '+', 'COUNT', BATCH)
        for _, entry in ipairs(batch) do
            carry_over(entry[1], entry[2])
            if broken then
                return { 'LATE', epoch }
            end
        end
        left = left - BATCH
        from = #batch == BATCH and '(' .. batch[#batch][1]
    end
    redis.call('HSET', META, 'copied', n)
    return { 'STEP', left > 0 and '' or from or '', n, foreign }
end

if redis.call('TYPE', ASIDE).ok == 'stream' then
    redis.call('UNLINK', ASIDE)
end
for name, value in pairs(seeds) do
    redis.call('HSET', seen, name, value)
end
redis.call('UNLINK', META)
redis.call('HSET', META, 'epoch', epoch, 'next', n, 'server', server_id(), 'archived', -1, 'complete', ARGV[4],
    'turn', 0, 'older', -1, 'seen_a', redis.call('HLEN', seen), 'seen_b', 0, 'log', ARGV[5])
return { 'OPEN', '', n, 0 }
