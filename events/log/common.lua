-- Shared by the scripts of the log; KEYS[1] is the stream, KEYS[2] the meta hash (see layout.py).

local LOG, META, SEEN = KEYS[1], KEYS[2], { KEYS[3], KEYS[4] }
local SEP = '\31'
local CHUNK = 2000 -- arguments of one call; Lua can unpack about 8000

-- What XINFO STREAM says, as a table; '0-0' and length 0 where there is no stream.
local function stream_info()
    local reply, info = redis.pcall('XINFO', 'STREAM', LOG), {}
    if reply.err then
        local absent = redis.call('EXISTS', LOG) == 0
        return { length = 0, ['last-generated-id'] = absent and '0-0' or 'not a stream' }
    end
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    return info
end

local function server_id()
    return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Meta as a table with numbers, or nil when the partition was never opened here (or somebody wrote into it).
local function read_meta()
    local m = redis.pcall('HMGET', META, 'epoch', 'next', 'server', 'archived', 'complete', 'turn', 'older', 'seen_a',
        'seen_b', 'log')
    for i = 1, 9 do
        if m.err or not m[i] or (i ~= 3 and not tonumber(m[i])) then
            return nil
        end
    end
    return {
        epoch = m[1], next = tonumber(m[2]), server = m[3], archived = tonumber(m[4]), complete = m[5] == '1',
        turn = tonumber(m[6]), older = tonumber(m[7]), seen = { tonumber(m[8]), tonumber(m[9]) }, log = m[10] or '',
    }
end

-- Where the stream must end, by what meta says.
local function last_id(meta)
    return meta.next == 0 and '0-0' or meta.epoch .. '-' .. (meta.next - 1)
end

-- Whether the seen hashes hold all that was written to them: what is gone would count as what never happened.
local function remembers_all(meta)
    for i = 1, 2 do
        if redis.pcall('HLEN', SEEN[i]) ~= meta.seen[i] then
            return false
        end
    end
    return true
end

-- Why nothing may be appended to the log of this identity now, or nil: log, server, meta, the end of the stream and what
-- is remembered of it must agree.
local function fence(meta, info, log)
    if not meta then
        return 'it was not opened on this Redis'
    end
    if meta.log ~= log then
        return 'this Redis holds the log of another store'
    end
    if meta.server ~= server_id() then
        return 'Redis was restarted or replaced'
    end
    if info['last-generated-id'] ~= last_id(meta) then
        return 'the log ends at ' .. info['last-generated-id'] .. ', not at ' .. last_id(meta)
    end
    if not remembers_all(meta) then
        return 'ids, attempts and numbers that the log remembered are gone'
    end
    return nil
end
