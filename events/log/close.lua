-- Close the partition for every epoch before ARGV[1], which SQL has opened: what recovery looks at grows no more.
-- Answers {epoch that was open or '', n up to which the archive had that epoch, as far as is known here, or -1}.

local open = redis.pcall('HGET', META, 'epoch')
if type(open) ~= 'string' then
    return { '', -1 }
end
local archived = redis.call('HGET', META, 'archived')
if (tonumber(open) or 0) < tonumber(ARGV[1]) then
    redis.call('HDEL', META, 'server') -- deleting works at the memory limit, too
end
return { open, archived and tonumber(archived) or -1 }
