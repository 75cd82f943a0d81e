"""The own cluster in Pulsar's admin API: brokers, tenants, namespaces, and lookup of topics.

A tenant exists if it was created or has a namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import (
    InvalidRequest,
    NamespaceExists,
    NamespaceNotFound,
    ShuttingDown,
    StorageFull,
    TopicInUse,
    TopicNotFound,
)
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.opened import listener_of
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_LIMIT,
    INVALID_NAME,
    METHOD_NOT_ALLOWED,
    NO_SUCH_PATH,
    TENANT_EXISTS,
    TENANT_IN_USE,
    RequestRefused,
    wire_code,
)
from braidlog.protocols.http.path_names import name_of, namespace_of, text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer, read_any, text
from braidlog.protocols.http.pulsar_admin.bundles import Bundles
from braidlog.protocols.http.pulsar_admin.cluster_fields import ADDRESSES
from braidlog.protocols.http.pulsar_admin.cluster_rules import (
    allowed_clusters,
    check_still_allowed,
    tenant_clusters,
)
from braidlog.protocols.http.pulsar_admin.names import full_names
from braidlog.protocols.http.pulsar_admin.namespace_policies import changes_of, document_of
from braidlog.protocols.http.pulsar_admin.new_objects import CLUSTER
from braidlog.protocols.http.pulsar_admin.permissions import shown_permissions
from braidlog.protocols.http.routes import topics_seen
from braidlog.storage.metadata.names import DEFAULT_NAMESPACE, PULSAR_ENTITY, valid_namespace

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader


LISTENER = "X-Pulsar-ListenerName"  # A header, in place of the query parameter.
TOPIC_MODES = ("PERSISTENT", "NON_PERSISTENT", "ALL")
OWNED = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}


class ClusterApi:
    """Handlers of a broker's cluster."""

    def __init__(self, broker: Broker, bodies: BodyReader, advertised_url: str) -> None:
        self._broker = broker
        self._bodies = bodies
        self._advertised_url = advertised_url.rstrip("/")

    def addresses(self, request: Request) -> dict[str, str]:
        """Return the addresses of the cluster, as far as there are such listeners."""
        urls = self._urls(request, "http", "http", "https")
        pulsar_urls = self._urls(request, "pulsar", "pulsar", "pulsar+ssl")
        addresses = (urls.get(False), urls.get(True), pulsar_urls.get(False), pulsar_urls.get(True))
        fields = zip(ADDRESSES, addresses, strict=True)
        return {name: url for name, url in fields if url is not None}

    async def brokers(self, request: Request) -> Response:
        """The addresses of the brokers, this one's first; any name of a cluster does, as in
        Apache.
        """
        return json_answer(self.broker_addresses(request))

    def broker_addresses(self, request: Request) -> list[str]:
        """Return the addresses of all brokers, this one's first."""
        broker = self._broker
        name = next(
            (
                listener.name
                for listener in broker.listeners.values()
                if listener.protocol == "http"
            ),
            "",
        )
        addresses = [other.addresses.get(name) for other in broker.placement.others()]
        others = [address_text(address) for address in addresses if address is not None]
        return [self._http_url(request).partition("://")[2], *others]

    def leader_url(self, request: Request) -> str:
        """Return the URL of the broker that makes changes of the catalogue, as far as its address
        is known; else this broker's.
        """
        owner = self._broker.placement.catalogue_owner()
        address = None if owner is None else owner.addresses.get("http")
        own = self._http_url(request)
        return own if address is None else f"{own.partition('://')[0]}://{address_text(address)}"

    async def owned_namespaces(self, request: Request) -> Response:
        """The bundles that a broker serves: those of every namespace."""
        name = text_of(request, "broker")
        if name not in self.broker_addresses(request):
            text = f"Broker id '{name[:100]}' not found in available brokers."
            raise RequestRefused(NO_SUCH_PATH, text)
        return json_answer(
            {
                f"{meta.tenant}/{meta.namespace}/{bundle}": OWNED
                for meta in self._broker.namespaces.all()
                for bundle in Bundles(meta.settings).names
            }
        )

    async def health(self, _: Request) -> Response:
        """`ok` if records can be stored."""
        if self._broker.stopping.is_set():
            raise ShuttingDown("the broker is stopping")
        if not await self._broker.has_room():
            raise StorageFull("there is no room for records")
        return text("ok")

    async def version(self, _: Request) -> Response:
        """The version of the broker."""
        return text(self._broker.version)

    async def configuration(self, _: Request) -> Response:
        """The cluster's name, and settings that programs read, as text.

        `pulsar-admin` requests the name before it lists clusters.
        """
        defaults = self._broker.topics.defaults
        return json_answer(
            {
                "clusterName": CLUSTER,
                "allowAutoTopicCreation": str(defaults.auto_create).lower(),
                "brokerDeduplicationEnabled": str(defaults.deduplication).lower(),
                "defaultNumPartitions": str(defaults.num_partitions),
            }
        )

    async def lookup(self, request: Request) -> Response:
        """The address at which Pulsar's clients find a topic, which need not exist yet; that of the
        listener `listenerName`, if the client names a listener.
        """
        name, _ = name_of(request)
        self._broker.namespaces.get(name.tenant, name.namespace)
        self._broker.placement.check(name)
        wanted = request.query_params.get("listenerName") or request.headers.get(LISTENER, "")
        urls = self._urls(request, "http", "http", "https")
        pulsar_urls = self._urls(request, "pulsar", "pulsar", "pulsar+ssl", wanted)
        if wanted and not pulsar_urls:  # Apache's words; its status is 500.
            text = f"the broker do not have {wanted[:60]} listener"
            raise RequestRefused(NO_SUCH_PATH, text)
        if not pulsar_urls:
            raise RequestRefused(NO_SUCH_PATH, "no listener serves Pulsar's binary protocol")
        # Pulsar's C++ client crashes without `brokerUrl`, although it uses only `brokerUrlTls`.
        url = pulsar_urls.get(False) or pulsar_urls[True]
        fields = {
            "brokerUrl": url,
            "brokerUrlTls": pulsar_urls.get(True),
            "httpUrl": urls.get(False),
            "httpUrlTls": urls.get(True),
            "nativeUrl": url,
            "brokerUrlSsl": "",
        }
        return json_answer({name: url for name, url in fields.items() if url is not None})

    def _urls(
        self, request: Request, protocol: str, plain: str, secure: str, name: str = ""
    ) -> dict[bool, str]:
        """Return the URLs of the listeners of a protocol, or of its listener of that name, as this
        client reaches them: without TLS (False) and with TLS (True), as far as there are such
        listeners.
        """
        urls = {}
        host = (request.scope.get("server") or ("127.0.0.1", 0))[0]
        for is_encrypted, scheme in ((False, plain), (True, secure)):
            listeners = [
                each for each in self._broker.listeners.values() if name in ("", each.name)
            ]
            listener = listener_of(listeners, protocol, is_encrypted=is_encrypted)
            if listener is not None:
                address = listener.advertised_to((host, listener.bound[1]))
                urls[is_encrypted] = f"{scheme}://{address_text(address)}"
        if protocol == "http":  # The request's own URL works for its client.
            own = self._http_url(request)
            urls[own.startswith("https:")] = own
        return urls

    def _http_url(self, request: Request) -> str:
        if self._advertised_url:
            return self._advertised_url
        host = request.headers.get("host", "")
        return f"{request.scope['scheme']}://{host}"

    # Tenants and namespaces.

    async def tenants(self, request: Request) -> Response:
        """The names of the tenants in which the client may see a resource."""
        metas = self._broker.namespaces.tenants()
        return json_answer([tenant for tenant in metas if self._reaches(request, tenant)])

    def _reaches(self, request: Request, tenant: str, namespace: str = "") -> bool:
        principal = request.scope["exchange"].principal
        return self._broker.access.reaches(principal, tenant, namespace)

    async def tenant(self, request: Request) -> Response:
        """A tenant."""
        tenant = self._known_tenant(request)
        roles = self._broker.namespaces.admin_roles(tenant)
        clusters = allowed_clusters(self._broker, tenant)
        return json_answer({"adminRoles": roles, "allowedClusters": clusters})

    async def create_tenant(self, request: Request) -> Response:
        """Create a tenant, with admin roles and allowed clusters."""
        tenant = self._tenant(request)
        roles, clusters = await self._roles_and_clusters(request)
        change = self._broker.namespaces.create_tenant(tenant, roles, clusters)
        return await self._created(change)

    async def alter_tenant(self, request: Request) -> Response:
        """Set the allowed clusters of a tenant, and the admin roles, which are only for display;
        permissions define the rights.
        """
        roles, clusters = await self._roles_and_clusters(request)
        tenant = self._tenant(request)
        if not self._broker.namespaces.has_tenant(tenant):
            text = f"Tenant {tenant} not found"  # Apache's words.
            raise RequestRefused(wire_code(NamespaceNotFound(text)), text)
        check_still_allowed(self._broker, tenant, clusters)
        change = self._broker.namespaces.alter_tenant(tenant, roles, clusters)
        return await self._created(change)

    async def _created(self, change: Awaitable[int]) -> Response:
        """Answer after a change of a tenant is on disk, or refuse the change in Apache's words."""
        try:
            ticket = await change
        except InvalidRequest as error:
            raise RequestRefused(BAD_BODY, str(error)) from error
        except NamespaceExists as error:
            raise RequestRefused(TENANT_EXISTS, "Tenant already exist") from error
        except TopicInUse as error:
            raise RequestRefused(TENANT_IN_USE, "The tenant still has active namespaces") from error
        await self._broker.durability.reached(ticket)
        return done()

    async def _roles_and_clusters(self, request: Request) -> tuple[list[str], Sequence[str]]:
        body = await read_any(self._bodies, request)
        clusters = tenant_clusters(self._broker, body)
        roles = body.get("adminRoles") if isinstance(body, dict) else None
        if roles is None:
            return [], clusters
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise RequestRefused(BAD_BODY, "adminRoles is a list of names")
        if any(role != role.strip() for role in roles):
            text = "AdminRoles contains whitespace in the beginning or end."  # Apache's words.
            raise RequestRefused(BAD_LIMIT, text)
        return [*roles], clusters

    async def delete_tenant(self, request: Request) -> Response:
        """Delete a tenant that has no namespace."""
        if query.truth(request, ("force",)):
            text = "Broker doesn't allow forced deletion of tenants"  # Apache's words.
            raise RequestRefused(METHOD_NOT_ALLOWED, text)
        tenant = self._tenant(request)
        return await self._created(self._broker.namespaces.delete_tenant(tenant))

    def _known_tenant(self, request: Request) -> str:
        tenant = self._tenant(request)
        if not self._broker.namespaces.has_tenant(tenant):
            raise NamespaceNotFound(f"tenant {tenant} does not exist")
        return tenant

    def _tenant(self, request: Request) -> str:
        tenant = text_of(request, "tenant")
        if not valid_namespace(tenant, DEFAULT_NAMESPACE):
            raise RequestRefused(INVALID_NAME, "Tenant name is not valid")  # Apache's words.
        return tenant

    async def namespaces(self, request: Request) -> Response:
        """The namespaces of a tenant in which the client may see a resource."""
        tenant = self._tenant(request)
        if not self._broker.namespaces.has_tenant(tenant):
            text = "Tenant not found"  # Apache's words.
            raise RequestRefused(wire_code(NamespaceNotFound(text)), text)
        metas = [meta for meta in self._broker.namespaces.all() if meta.tenant == tenant]
        seen = [
            namespace_meta
            for namespace_meta in metas
            if self._reaches(request, tenant, namespace_meta.namespace)
        ]
        return json_answer(sorted(f"{tenant}/{meta.namespace}" for meta in seen))

    async def namespace(self, request: Request) -> Response:
        """A namespace's policies, with permissions if the client may change them."""
        place = namespace_of(request)
        document = document_of(self._broker.namespaces.get(*place).settings)
        may_rule = self._broker.access.allows(
            request.scope["exchange"].principal, Action.ADMINISTER, Resource.of_namespace(*place)
        )
        if may_rule:
            document["auth_policies"] |= shown_permissions(self._broker, *place)
        return json_answer(document)

    async def put_namespace(self, request: Request) -> Response:
        """Create a namespace, with the body's policies."""
        tenant, namespace = namespace_of(request)
        body = await read_any(self._bodies, request)
        if not PULSAR_ENTITY.fullmatch(namespace):  # Other protocols' clients may create them.
            raise RequestRefused(INVALID_NAME, "Namespace name is not valid")
        if not self._broker.namespaces.has_tenant(tenant):
            text = "Tenant does not exist"  # Apache's words.
            raise RequestRefused(wire_code(NamespaceNotFound(text)), text)
        changes = changes_of(self._broker, tenant, body, request)
        ticket = await self._broker.namespaces.create(tenant, namespace)
        if changes:
            ticket = await self._broker.topics.alter_namespace(tenant, namespace, changes)
        await self._broker.durability.reached(ticket)
        return done()

    async def delete_namespace(self, request: Request) -> Response:
        """Delete a namespace without topics; with `force`, also delete its topics."""
        tenant, namespace = namespace_of(request)
        if self._broker.namespaces.find(tenant, namespace) is None:
            text = f"Namespace {tenant}/{namespace} does not exist."
            raise RequestRefused(wire_code(NamespaceNotFound(text)), text)
        if query.truth(request, ("force",)):
            for topic in self._broker.topics.list(tenant, namespace):
                with suppress(TopicNotFound):  # Another client was faster.
                    await self._broker.topics.delete(topic.name)
            await self._broker.non_persistent.delete_all(tenant, namespace)
        elif self._broker.non_persistent.has_topics(tenant, namespace):
            raise TopicInUse(f"{tenant}/{namespace} has topics")
        ticket = await self._broker.namespaces.delete(tenant, namespace)
        await self._broker.durability.reached(ticket)
        return done()

    async def unload(self, request: Request) -> Response:
        """Answer that a namespace is unloaded; there is nothing to do."""
        self._broker.namespaces.get(*namespace_of(request))
        return done()

    async def topics_of_namespace(self, request: Request) -> Response:
        """Every topic of a namespace that the client may see, each partition separately; by default
        only persistent topics.
        """
        broker, place = self._broker, namespace_of(request)
        broker.namespaces.get(*place)
        mode = request.query_params.get("mode") or TOPIC_MODES[0]
        if mode not in TOPIC_MODES:
            text = f"mode {mode[:40]!r} is unknown, expected {', '.join(TOPIC_MODES)}"
            raise RequestRefused(NO_SUCH_PATH, text)  # Apache's status.
        names: list[str] = []
        if mode != "NON_PERSISTENT":
            names += full_names(
                await topics_seen(broker, request, place, broker.topics.list(*place))
            )
        if mode != "PERSISTENT":
            topics = [channel.topic for channel in broker.non_persistent.list(*place)]
            seen_topics = await topics_seen(broker, request, place, topics)
            names += [topic.metrics_name for topic in seen_topics]
        return json_answer(names)
