-- Whether a reader that has everything up to a position can go on from it.
-- ARGV[1], ARGV[2]: epoch and n of the position; n is -1 at the start of an epoch. ARGV[3]: identity of the log.
--
-- Answers {epoch that is open or 0, '' | 'REWOUND' | 'GAP', why not, identity of the log that is here or '', 1 when Redis
-- has what it had at that position and all that followed, whatever else is wrong, 1 when appends go on here, whatever the
-- reader has, 1 when this server is the replica of another}.

local meta, info = read_meta(), stream_info()
local epoch, n = ARGV[1], tonumber(ARGV[2])
local whole = meta and meta.epoch == epoch and meta.next > n and info['last-generated-id'] == last_id(meta)
    and remembers_all(meta)
local why = fence(meta, info, ARGV[3])
local replica = string.find(redis.call('INFO', 'replication'), 'role:slave', 1, true)

local function answer(kind, reason)
    return { meta and tonumber(meta.epoch) or 0, kind, reason, meta and meta.log or '', whole and 1 or 0, why and 0 or 1,
        replica and 1 or 0 }
end

if why then
    return answer('REWOUND', why)
end
if meta.epoch ~= epoch then
    return answer('REWOUND', 'epoch ' .. meta.epoch .. ' is open, not epoch ' .. epoch)
end
if n >= meta.next then
    return answer('REWOUND', 'the log ends before ' .. epoch .. '-' .. n)
end
local first = info.length == 0 and meta.next or tonumber(string.match(info['first-entry'][1], '-(%d+)$'))
if first > n + 1 or info.length ~= meta.next - first then
    return answer('GAP', 'entries after ' .. epoch .. '-' .. n .. ' are missing')
end
return answer('', '')
