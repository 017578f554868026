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
        socket: the path where it shall listen.
        prefix: what the names of its actors begin with; those of another daemon have another one.
        silence_ms: an actor ends when no bridge has called it for so long.
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
        name: of the actor. One that an earlier bridge left is taken over.
        labels: of the nodes that may have it.
        node: the name of a node that is taken if it has a free slot.
        autoscaler: the cluster starts nodes for actors that wait.
    """

    name: str
    labels: Mapping[str, str]
    node: str | None = None
    autoscaler: bool = False


class Visit(Message, frozen=True, kw_only=True):
    """Asks for an actor without a slot on the node of this name: `Placed`. It ends with the connection."""

    node: str


class EndPlace(Message, frozen=True, kw_only=True):
    """Asks for the end of the actor of this name, which an earlier bridge may have left: `ActorEnded`."""

    name: str


class ListNodes(Message, frozen=True, kw_only=True):
    """Asks for `Nodes`."""


class RunCommand(Message, frozen=True, kw_only=True):
    """Runs a command at a place; the rest of the connection is as `ray_relay` has it."""

    place: str
    command: str


# --- answers ---------------------------------------------------------------------------------------------


class ActorWaiting(Message, frozen=True, kw_only=True):
    """Why there is no actor yet; `slots` are those of all nodes that may have it."""

    reason: str
    slots: int


class ActorEnded(Message, frozen=True, kw_only=True):
    """There is no such actor any more."""


class Placed(Message, frozen=True, kw_only=True):
    """The actor is there: the name of its place, its node, and the Python there."""

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
