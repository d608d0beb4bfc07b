"""One HTTP request on a connection of its own, which the server closes behind its answer."""
import asyncio


async def exchange(port, request):
    """(status, all bytes of the answer) of a server on this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        answer = await reader.read(-1)
    finally:
        writer.close()
    return int(answer[9:12]), answer
