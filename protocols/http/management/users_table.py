"""The routes of users and permissions. `docs/api.md` describes each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.management import users as u
from braidlog.protocols.http.routes import Endpoint, Query, Routes
from braidlog.protocols.http.routing import PathRoute

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

TEXT = {"type": "string"}
SUBJECT = Query("subject", "A user's name, or `role:` and a role.", TEXT)
ACTION = Query("action", "What is done.", TEXT)
RESOURCE = Query("resource", "What it is done to.", TEXT)


def user_routes(broker: Broker, bodies: BodyReader, routes: Routes, api: str) -> list[PathRoute]:
    """Return the routes of users and permissions, below `api`."""
    users = u.UsersApi(broker, bodies)
    route = routes.route
    admin = Action.ADMINISTER
    return [
        route(f"{api}/users", GET=Endpoint(users.list_users, admin, answer=u.UserList)),
        route(
            f"{api}/users/{{user}}",
            GET=Endpoint(users.show, admin, answer=u.UserInfo),
            PUT=Endpoint(
                users.create, admin, body=u.CreateUser, answer=u.UserInfo, statuses=(201,)
            ),
            PATCH=Endpoint(users.alter, admin, body=u.AlterUser, answer=u.UserInfo),
            DELETE=Endpoint(users.delete, admin, statuses=(204,)),
        ),
        route(
            f"{api}/users/{{user}}/tokens/{{token}}",
            PUT=Endpoint(
                users.create_token, admin, body=u.CreateToken, answer=u.NewToken, statuses=(201,)
            ),
            DELETE=Endpoint(users.delete_token, admin, statuses=(204,)),
        ),
        route(
            f"{api}/permissions",
            GET=Endpoint(users.list_permissions, admin, answer=u.PermissionList, query=(SUBJECT,)),
            POST=Endpoint(
                users.grant, admin, body=u.Permission, answer=u.Permission, statuses=(201,)
            ),
            DELETE=Endpoint(
                users.revoke, admin, query=(SUBJECT, ACTION, RESOURCE), statuses=(204,)
            ),
        ),
        route(
            f"{api}/permissions/test",
            GET=Endpoint(
                users.test,
                admin,
                answer=u.Verdict,
                query=(Query("user", "The user's name.", TEXT), ACTION, RESOURCE),
            ),
        ),
    ]
