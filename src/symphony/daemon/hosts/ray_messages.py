"""Messages between the daemon and its bridge to Ray: one line of JSON each."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from symphony.domain import Category

INSTALL_HINT: Final = "install this release in the Python of each node, or name it in worker.ray.runtime_env"


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="message", omit_defaults=True):
    """One message. The name of its class tags it."""


class BridgeSettings(Message, frozen=True, kw_only=True):
    """The first line that the bridge reads.

    Attributes:
        socket: the path of the socket to listen on.
        prefix: the prefix of its actors' names; another daemon has another one.
        silence_ms: an actor ends after this time without a call by a bridge.
    """

    socket: str
    address: str
    namespace: str
    slots_resource: str
    runtime_env: Mapping[str, Any]
    prefix: str
    silence_ms: int


class Ready(Message, frozen=True, kw_only=True):
    """The bridge is connected; its releases."""

    symphony: str
    ray: str
    python: str


class Refused(Message, frozen=True, kw_only=True):
    """A refusal: the reason in one line, and what to do."""

    reason: str
    hint: str | None = None
    category: Category = Category.HOST_UNAVAILABLE


# --- asked of the bridge ---------------------------------------------------------------------------------


class PlaceActor(Message, frozen=True, kw_only=True):
    """Asks for an actor with a slot: `ActorWaiting` any number of times, then `Placed`. The link ends it.

    Attributes:
        name: the name of the actor. An actor of an earlier bridge is taken over.
        labels: the labels of the nodes that may have it.
        node: the name of a node to use if it has a free slot.
        autoscaler: whether the cluster starts nodes for waiting actors.
    """

    name: str
    labels: Mapping[str, str]
    node: str | None = None
    autoscaler: bool = False


class Visit(Message, frozen=True, kw_only=True):
    """Asks for an actor without a slot on the node with this name: `Placed`. It ends with the connection."""

    node: str


class EndPlace(Message, frozen=True, kw_only=True):
    """Asks for the end of the actor with this name, which may be of an earlier bridge: `ActorEnded`."""

    name: str


class ListNodes(Message, frozen=True, kw_only=True):
    """Asks for `Nodes`."""


class RunCommand(Message, frozen=True, kw_only=True):
    """Runs a command at a place; then the connection follows `ray_relay`."""

    place: str
    command: str


# --- answers ---------------------------------------------------------------------------------------------


class ActorWaiting(Message, frozen=True, kw_only=True):
    """Why there is no actor yet; `slots` counts the slots of all nodes that may have it."""

    reason: str
    slots: int


class ActorEnded(Message, frozen=True, kw_only=True):
    """The actor does not exist any more."""


class Placed(Message, frozen=True, kw_only=True):
    """The actor exists: the name of its place, its node, and the Python there."""

    place: str
    node: str
    node_id: str
    python: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster. Its name is unique among those that are alive."""

    name: str
    node_id: str
    address: str
    alive: bool
    slots: int
    labels: Mapping[str, str]


class Nodes(Message, frozen=True, kw_only=True):
    """The nodes of the cluster, dead ones too, and how many of the slots are free; `release` is Ray's."""

    release: str
    nodes: tuple[Node, ...]
    free_slots: int


Request = PlaceActor | Visit | EndPlace | ListNodes | RunCommand
Answer = ActorWaiting | Placed | ActorEnded | Nodes | Refused
