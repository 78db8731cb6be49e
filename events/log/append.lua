-- Append a batch to one partition, or write nothing. Each event is judged, numbered and remembered in one step.
--
-- ARGV[1] msgpack {window, limit, turn of the seeds or -1, identity of the log}
-- ARGV[2] msgpack {field of a seen hash = value}: seeds, what the archive answered to an earlier NEED
-- ARGV[3] msgpack {{<org> <task>, run}, ...}: the runs of the batch
-- ARGV[4] msgpack {{id field, digest, run index or 0, attempt, seq or 0, stream field, value, ...}, ...}
--         attempt: of a run.started; 0 for another event of its run; -1 when attempts do not concern the event; -2 as
--         -1, and when a number of its run is refused, what follows it in this batch is refused, too
-- ARGV[5] absent, or msgpack {{[event] = {epoch, n}}, {type = true}}: events that are stored only while their run is
--         silent behind that position, and types that are no sign of a run's life
--
-- Answers {'FENCED', why} | {'FULL', entries} | {'NEED', turn, fields} | {'OK', epoch, one outcome an event}: n when
-- stored, else {'duplicate', n or '<epoch>-<n>'} | {'conflict', ...} | {'attempt', latest, winner} | {'started', attempt}
-- | {'superseded', latest, winner} | {'seq', expected} | {'follows', seq} | {'speaks', n}.

local window, limit, seeds_turn, log = unpack(cmsgpack.unpack(ARGV[1]))
local seeds = cmsgpack.unpack(ARGV[2])
local runs = cmsgpack.unpack(ARGV[3])
local events = cmsgpack.unpack(ARGV[4])

local meta = read_meta()
local why = fence(meta, stream_info(), log)
if why then
    return { 'FENCED', why }
end

-- The two hashes take turns. The older one may go only when the archive holds all that it remembers.
local function current() return meta.turn % 2 + 1 end
local function older() return (meta.turn + 1) % 2 + 1 end

local entries = meta.seen[current()]
if entries >= window then
    if meta.older <= meta.archived then
        if redis.call('UNLINK', SEEN[older()]) == 1 then
            meta.complete = false
        end
        meta.seen[older()] = 0
        meta.turn, meta.older = meta.turn + 1, meta.next - 1
        redis.call('HSET', META, 'turn', meta.turn, 'older', meta.older, 'complete', meta.complete and 1 or 0,
            'seen_a', meta.seen[1], 'seen_b', meta.seen[2])
    elseif entries >= limit then
        return { 'FULL', entries }
    end
end

local LOST = '-1' -- in place of the attempt of a run
local known, fresh = {}, {} -- fields of the seen hashes: as they stand, and those to write

local function fetch_from(hash, names)
    local missing = {}
    for from = 1, #names, CHUNK do
        local values = redis.call('HMGET', hash, unpack(names, from, math.min(from + CHUNK - 1, #names)))
        for i = 1, #values do
            local name = names[from + i - 1]
            if values[i] then
                known[name] = values[i]
            else
                missing[#missing + 1] = name
            end
        end
    end
    return missing
end

local function put(name, value)
    known[name], fresh[name] = value, value
end

local names = {}
for i, event in ipairs(events) do
    names[i] = event[1]
end
for _, run in ipairs(runs) do
    local task, name = run[1], run[2]
    run.name = name
    run.latest = 'a' .. task
    run.start = 'r' .. task .. SEP .. name
    run.seq = 's' .. task .. SEP .. name
    names[#names + 1], names[#names + 2], names[#names + 3] = run.latest, run.start, run.seq
end
local missing = fetch_from(SEEN[current()], names)
if meta.turn > 0 and #missing > 0 then
    fetch_from(SEEN[older()], missing)
end
-- What was appended since the NEED is in a hash that is still here, unless both have changed places since.
if seeds_turn >= meta.turn - 1 then
    for name, value in pairs(seeds) do
        if not known[name] then
            put(name, value)
        end
    end
end

local latest_of = {} -- parsed: the latest attempt of a task and its winner

local function latest(run)
    local found = latest_of[run.latest]
    if not found then
        local attempt, winner = string.match(known[run.latest], '^(%d+)' .. SEP .. '(.*)$')
        found = { attempt = tonumber(attempt), winner = winner }
        latest_of[run.latest] = found
    end
    return found
end

local need, asked = {}, {}

local function want(name, nothing)
    if known[name] or asked[name] then
        return
    end
    if meta.complete then
        known[name] = nothing
    else
        need[#need + 1], asked[name] = name, true
    end
end

for _, event in ipairs(events) do
    local run = runs[event[3]]
    if run and not known[event[1]] then
        if event[4] >= 0 then
            want(run.latest, '0' .. SEP)
            if not known[run.latest] or latest(run).winner ~= run.name then
                want(run.start, '0')
            end
        end
        if event[5] > 0 then
            want(run.seq, '0')
        end
    end
end
if #need > 0 then
    return { 'NEED', meta.turn, need }
end

-- A run that wanted to start and lost against the winner of its task has no say from then on, until it starts after all.
-- What comes again is put again, so that the turns of the hashes do not forget a worker that goes on.
local function lose(run)
    put(run.start, LOST)
end

local function refusal(event, run)
    local attempt, seq = event[4], event[5]
    if attempt >= 0 then
        local now = latest(run)
        local mine = run.name == now.winner and now.attempt or tonumber(known[run.start])
        if attempt > 0 then
            if attempt ~= now.attempt + 1 then
                if now.attempt > 0 and mine <= 0 then
                    lose(run)
                end
                return { 'attempt', now.attempt, now.winner }
            elseif mine > 0 then
                return { 'started', mine }
            end
        elseif known[run.start] == LOST and run.name ~= now.winner then
            lose(run)
            return { 'superseded', now.attempt, now.winner }
        elseif mine > 0 and mine < now.attempt then
            return { 'superseded', now.attempt, now.winner }
        end
    end
    if run.stopped and attempt == -2 then
        -- its number may be free by now, but what it builds upon is not there
        return { 'follows', run.stopped }
    end
    if seq > 0 and seq ~= tonumber(known[run.seq]) + 1 then
        run.stopped = seq
        return { 'seq', tonumber(known[run.seq]) + 1 }
    end
    return nil
end

local silences, outsiders = {}, {}
if ARGV[5] then
    silences, outsiders = unpack(cmsgpack.unpack(ARGV[5]))
end
local MOST = 5000 -- entries that are looked through; behind more of them nobody knows a run to be silent

-- Where the run of an event has spoken behind the position up to which somebody found it silent, or nil.
local function speaks(run, since)
    local from = since[2] + 1
    if since[1] ~= tonumber(meta.epoch) or meta.next - from > MOST then
        return from
    end
    for _, entry in ipairs(redis.call('XRANGE', LOG, meta.epoch .. '-' .. from, '+')) do
        local n, fields = tonumber(string.match(entry[1], '-(%d+)$')), {}
        for i = 1, #entry[2], 2 do
            fields[entry[2][i]] = entry[2][i + 1]
        end
        if n ~= from then
            return from -- trimmed before it was looked through
        end
        local task = fields.org .. SEP .. (fields.task or '')
        if task == run[1] and fields.run == run.name and not outsiders[fields.type] then
            return n
        end
        from = from + 1
    end
    return nil
end

local function remember(event, run, n)
    put(event[1], n .. ' ' .. event[2])
    if event[4] > 0 then
        local before = latest(run)
        if before.attempt > 0 then
            put('r' .. run[1] .. SEP .. before.winner, tostring(before.attempt))
        end
        put(run.latest, event[4] .. SEP .. run.name)
        put(run.start, tostring(event[4]))
        latest_of[run.latest] = nil
    end
    if event[5] > 0 then
        put(run.seq, tostring(event[5]))
    end
end

local outcomes, last = {}, nil
for i, event in ipairs(events) do
    local seen, run = known[event[1]], runs[event[3]]
    if seen then
        local place, digest = string.match(seen, '^(%S+) (.*)$')
        outcomes[i] = { digest == event[2] and 'duplicate' or 'conflict', tonumber(place) or place }
    else
        local spoke = silences[i] and speaks(run, silences[i])
        local refused = spoke and { 'speaks', spoke } or run and refusal(event, run)
        if refused then
            outcomes[i] = refused
        else
            last = redis.call('XADD', LOG, meta.epoch .. '-*', unpack(event, 6))
            remember(event, run, meta.next)
            outcomes[i] = meta.next
            meta.next = meta.next + 1
        end
    end
end
if last and last ~= meta.epoch .. '-' .. (meta.next - 1) then
    -- cannot be after the fence; were it so, the next append would be fenced and recovery would number anew
    return redis.error_reply('REFOLD entries were numbered up to ' .. last .. ', not ' .. (meta.next - 1))
end

local flat, seen = {}, current()

local function write()
    if #flat > 0 then
        meta.seen[seen] = meta.seen[seen] + redis.call('HSET', SEEN[seen], unpack(flat))
        flat = {}
    end
end

for name, value in pairs(fresh) do
    flat[#flat + 1], flat[#flat + 2] = name, value
    if #flat >= CHUNK then
        write()
    end
end
write()
if next(fresh) then
    redis.call('HSET', META, 'next', meta.next, seen == 1 and 'seen_a' or 'seen_b', meta.seen[seen])
end
return { 'OK', meta.epoch, outcomes }
