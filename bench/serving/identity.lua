-- wrk's requests for identity.py: one tensor of one element, the same text for every server.
wrk.method = "POST"
wrk.body = '{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1.5]}]}'
wrk.headers["Content-Type"] = "application/json"

wrong = 0
function response(status, headers, body)
    if status ~= 200 or not body:find("1.5", 1, true) then wrong = wrong + 1 end
end

local threads = {}
function setup(thread) table.insert(threads, thread) end

function done(summary, latency, requests)
    local bad = 0
    for _, thread in ipairs(threads) do bad = bad + (thread:get("wrong") or 0) end
    local e = summary.errors
    io.write(string.format('{"requests":%d,"us":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,"wrong":%d,"errors":%d}\n', summary.requests,
        summary.duration, latency:percentile(50), latency:percentile(99), latency.max, bad,
        e.connect + e.read + e.write + e.status + e.timeout))
end
