"""A gRPC service and a client of it, by the grpcio package, with plain bytes for messages.

serve                      prints its port, then serves
call CA HOST PORT          calls every kind of method through the edge and checks the answers
"""

import sys
import threading
from concurrent import futures

import grpc

SERVICE = "echo.Echo"


def unary(request, context):
    context.set_trailing_metadata((("x-trailer", "unary-end"),))
    return request


def down(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def up(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def both(requests, context):
    yield from requests


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 % sure")


def refuse(requests, context):
    """Ends the call before the client has sent anything, and before it has half-closed."""
    context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
    yield b""


def serve():
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Refuse": grpc.stream_stream_rpc_method_handler(refuse),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    print("port", server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


def half_open(over):
    """One message, and no end before the call is over."""
    yield b"first"
    over.wait(30)


def call(ca, host, port):
    with open(ca, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = (("grpc.ssl_target_name_override", host), ("grpc.default_authority", f"{host}:{port}"))
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        answer, done = channel.unary_unary(f"/{SERVICE}/Unary").with_call(b"hello", timeout=30)
        assert answer == b"hello", answer
        assert ("x-trailer", "unary-end") in [(key, value) for key, value in done.trailing_metadata()]
        big = b"x" * 3_000_000
        assert channel.unary_unary(f"/{SERVICE}/Unary")(big, timeout=30) == big
        received = list(channel.unary_stream(f"/{SERVICE}/Down")(b"200", timeout=30))
        assert received == [b"%d" % number for number in range(200)], received
        assert channel.stream_unary(f"/{SERVICE}/Up")(iter([b"12345"] * 100), timeout=30) == b"500"
        talk = channel.stream_stream(f"/{SERVICE}/Both")(iter([b"a", b"b", b"c"]), timeout=30)
        assert list(talk) == [b"a", b"b", b"c"]
        try:
            channel.unary_unary(f"/{SERVICE}/Fail")(b"", timeout=30)
            raise AssertionError("a failure must stay a failure")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
            assert error.details() == "not today: 100 % sure", error
        for method, status in ("Refuse", "PERMISSION_DENIED"), ("Missing", "UNIMPLEMENTED"):
            over = threading.Event()
            try:
                list(channel.stream_stream(f"/{SERVICE}/{method}")(half_open(over), timeout=30))
                raise AssertionError("a refused call must not end well")
            except grpc.RpcError as error:
                assert error.code().name == status, error
            finally:
                over.set()
    print("all calls answered")


def call_nobody(ca, host, port):
    """The status that a client sees when the edge itself answers."""
    with open(ca, "rb") as file:
        credentials = grpc.ssl_channel_credentials(file.read())
    options = (("grpc.ssl_target_name_override", host), ("grpc.default_authority", f"{host}:{port}"))
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        try:
            channel.unary_unary(f"/{SERVICE}/Unary")(b"", timeout=30)
        except grpc.RpcError as error:
            print("status", error.code().name)


if __name__ == "__main__":
    {"serve": serve, "call": call, "call-nobody": call_nobody}[sys.argv[1]](*sys.argv[2:])
