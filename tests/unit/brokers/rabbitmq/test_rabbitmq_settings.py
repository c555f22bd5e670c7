"""A broker's settings become pika's parameters, or an error that says what to write instead."""

import pytest

from duebridge.errors import ConfigError
from duebridge_connectors.rabbitmq import open_publisher
from duebridge_connectors.rabbitmq.settings import connection_parameters

URL = "amqp://user:s3cret@rabbit.example:5673/orders%2Feu"
TLS_URL = "amqps://user:s3cret@rabbit.example/"


def test_read_a_url_gives_host_port_vhost_and_credentials() -> None:
    parameters = connection_parameters({"type": "rabbitmq", "url": URL})
    assert (parameters.host, parameters.port) == ("rabbit.example", 5673)
    assert parameters.virtual_host == "orders/eu"
    assert parameters.credentials.username == "user"
    assert parameters.ssl_options is None


def test_read_an_amqps_url_checks_the_certificate() -> None:
    parameters = connection_parameters({"url": "amqps://rabbit.example/"})
    assert parameters.port == 5671
    assert parameters.ssl_options.context.check_hostname


@pytest.mark.parametrize("url", ["amqp://u:p@ss/w#rd@h/", "amqp://u:p@s3cret/rd@h/"])
def test_read_a_url_with_a_raw_password_says_how_to_encode_it(url: str) -> None:
    with pytest.raises(ConfigError, match="expected user, password and vhost percent-encoded"):
        connection_parameters({"url": url})


def test_read_no_options_sets_heartbeat_and_timeouts() -> None:
    parameters = connection_parameters({"url": URL})
    assert parameters.heartbeat == 30
    assert parameters.blocked_connection_timeout == 300
    assert parameters.socket_timeout == 5
    assert parameters.client_properties == {"connection_name": "duebridge"}


def test_read_options_sets_each_under_pikas_name() -> None:
    options = {
        "heartbeat": 7,
        "blocked_connection_timeout": "1.5",
        "frame_max": 8192,
        "client_properties": {"connection_name": "billing"},
        "tcp_options": {"TCP_KEEPIDLE": 60, "TCP_KEEPCNT": "3"},
    }
    parameters = connection_parameters({"url": URL, "options": options})
    assert parameters.heartbeat == 7
    assert parameters.blocked_connection_timeout == 1.5
    assert parameters.frame_max == 8192
    assert parameters.client_properties == {"connection_name": "billing"}
    assert parameters.tcp_options == {"TCP_KEEPIDLE": 60, "TCP_KEEPCNT": 3}


@pytest.mark.parametrize(("options", "expected"), [({}, 9), ({"heartbeat": 11}, 11)])
def test_read_an_option_prefers_the_mapping_to_the_url_and_that_to_the_default(
    options: dict[str, object], expected: int
) -> None:
    settings = {"url": f"{URL}?heartbeat=9", "options": options}
    assert connection_parameters(settings).heartbeat == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": URL, "optoins": {}}, "optoins: unknown key, did you mean options?"),
        ({}, "url: expected amqp://user:password@host:port/vhost"),
        ({"url": 5}, "url: expected amqp://"),
        ({"url": ""}, "url: expected amqp://user:password@host"),
        ({"url": "rabbit.example:5672"}, "url: expected amqp://user:password@host"),
        ({"url": "amqp:/x"}, "url: expected amqp://user:password@host"),
        ({"url": "http+x://h/"}, "url: expected amqp://"),
        ({"url": "amqp://h:port/"}, "url: expected amqp://"),
        ({"url": "amqp://[::1/"}, "url: expected amqp://"),
        ({"url": f"{URL}?hartbeat=1"}, "options.hartbeat: unknown option, did you mean heartbeat?"),
        ({"url": f"{URL}?retry_delay=1"}, "options.retry_delay: the bridge itself reconnects"),
        ({"url": URL, "options": []}, "options: expected a mapping"),
        ({"url": URL, "options": {"hearbeat": 1}},
         "options.hearbeat: unknown option, did you mean heartbeat?"),
        ({"url": URL, "options": {"host": "h"}}, "options.host: it is part of the url"),
        ({"url": URL, "options": {"connection_attempts": 3}},
         "options.connection_attempts: the bridge itself reconnects"),
        ({"url": URL, "options": {"heartbeat": "soon"}}, "options.heartbeat: refused; got a text"),
        ({"url": URL, "options": {"heartbeat": None}}, "options.heartbeat: expected a value"),
        ({"url": URL, "options": {"frame_max": 1}}, "options.frame_max: refused; got 1"),
        ({"url": URL, "options": {"tcp_options": {"TCP_KEEPIDLE": 0}}},
         "options.tcp_options.TCP_KEEPIDLE: expected a number that a socket takes; got another"),
        ({"url": URL, "options": {"tcp_options": {"TCP_KEEPIDLE": 99999999999}}},
         "options.tcp_options.TCP_KEEPIDLE: expected a number"),
        ({"url": URL, "options": {"tcp_options": {"TCP_KEEPCNT": 1.5}}},
         "options.tcp_options.TCP_KEEPCNT: expected a number"),
        ({"url": URL, "options": {"tcp_options": {"TCP_KEEPIDL": 60}}},
         "options.tcp_options.TCP_KEEPIDL: unknown option, did you mean TCP_KEEPIDLE?"),
        ({"url": f"{URL}?tcp_options={{'TCP_KEEPIDLE': 0}}"},
         "options.tcp_options.TCP_KEEPIDLE: expected a number"),
        ({"url": URL, "options": {"heartbeat": 65536}},
         "options.heartbeat: expected at most 65535 seconds; got another value"),
        ({"url": f"{URL}?heartbeat=65536"}, "options.heartbeat: expected at most 65535 seconds"),
        ({"url": URL, "options": {"locale": "x" * 256}},
         "options.locale: expected text of at most 255 bytes; got another value"),
        ({"url": URL, "options": {"client_properties": {"x": 1.5}}},
         "options.client_properties: expected names of at most 255 bytes, each with text, "),
        ({"url": URL, "options": {"client_properties": {"x" * 256: "y"}}},
         "options.client_properties: expected names of at most 255 bytes"),
        ({"url": f"amqp://h/{'x' * 256}"}, "url: expected a vhost that is text of at most 255"),
        ({"url": URL, "options": {"ssl_options": {}}},
         "expected a url of amqps://; got one of amqp"),
        ({"url": TLS_URL, "options": {"ssl_options": {"cafile": "/no"}}},
         "options.ssl_options.cafile: unknown option, expected one of ca_certs"),
        ({"url": TLS_URL, "options": {"ssl_options": {"ca_certs": "/nowhere"}}},
         "options.ssl_options.ca_certs: /nowhere: No such file"),
        ({"url": TLS_URL, "options": {"ssl_options": {"keyfile": __file__}}},
         "options.ssl_options.keyfile: has no effect without certfile"),
        ({"url": f"{TLS_URL}?ssl_options=1"}, "options.ssl_options: expected beside the url"),
        ({"url": URL, "options": {"auth_mechanism": "LDAP"}}, "expected one of PLAIN, EXTERNAL"),
        ({"url": TLS_URL, "options": {"auth_mechanism": "EXTERNAL"}},
         "EXTERNAL needs options.ssl_options.certfile"),
    ],
)  # fmt: skip
def test_read_bad_settings_says_what_is_wrong(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        connection_parameters(settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "rabbit://user:s3cret@h/"},
        {"url": "amqp://user:s3cr/et@h/"},
        {"url": "amqp://user:s3cret@h:x/"},
        {"url": TLS_URL, "options": {"ssl_options": {"certfile": "/", "password": "s3cret"}}},
        {"url": URL, "options": {"heartbeat": "x"}},
    ],
)
def test_read_bad_settings_shows_no_password(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        open_publisher(settings, 1.0)
    assert "s3cr" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
