"""The operations, as constants, so that tests can hold each against Linear's own schema.

A page of issues names no relations: Linear charges for what a query could return, and most issues are blocked
by nothing. Blockers are asked for where a filter says that there are some.
"""

__all__ = [
    "BLOCKERS",
    "BY_IDS",
    "BY_STATES",
    "COMMENT",
    "COMMENTS",
    "CREATE_COMMENT",
    "EDIT_COMMENT",
    "LABELS",
    "LOOK",
    "MOVE",
    "NEWEST",
    "OPERATIONS",
    "STATES",
    "VIEWER",
]

_FIELDS = """
    nodes {
      id identifier title description priority branchName url createdAt updatedAt
      state { name type }
      assignee { id }
      labels(first: 10) { nodes { name } pageInfo { hasNextPage } }
    }
    pageInfo { hasNextPage endCursor }
"""

NEWEST = """query SymphonyNewest($slugs: [String!]!) {
  issues(filter: {project: {slugId: {in: $slugs}}}, first: 1, orderBy: updatedAt) {
    nodes { id updatedAt }
  }
}"""

BY_STATES = f"""query SymphonyIssues($slugs: [String!]!, $states: [String!]!, $first: Int!, $after: String) {{
  issues(
    filter: {{project: {{slugId: {{in: $slugs}}}}, state: {{name: {{in: $states}}}}}}
    first: $first
    after: $after
  ) {{{_FIELDS}  }}
}}"""

BY_IDS = f"""query SymphonyIssuesById($slugs: [String!]!, $ids: [ID!]!, $first: Int!) {{
  issues(filter: {{project: {{slugId: {{in: $slugs}}}}, id: {{in: $ids}}}}, first: $first) {{{_FIELDS}  }}
}}"""

BLOCKERS = """query SymphonyBlockers($ids: [ID!]!, $first: Int!, $after: String) {
  issues(filter: {id: {in: $ids}, hasBlockedByRelations: {eq: true}}, first: $first, after: $after) {
    nodes {
      id
      inverseRelations(first: 20) {
        nodes { type issue { id identifier state { name type } } }
        pageInfo { hasNextPage }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}"""

LABELS = """query SymphonyLabels($id: String!, $first: Int!) {
  issue(id: $id) { id labels(first: $first) { nodes { name } } }
}"""

VIEWER = """query SymphonyViewer { viewer { id name } }"""

LOOK = """query SymphonyLook($slugs: [String!]!) {
  viewer { id name }
  projects(filter: {slugId: {in: $slugs}}, first: 1) {
    nodes { name slugId teams(first: 5) { nodes { states(first: 50) { nodes { name } } } } }
  }
}"""

STATES = """query SymphonyStates($id: String!) {
  issue(id: $id) { id state { name } team { states(first: 100) { nodes { id name } } } }
}"""

MOVE = """mutation SymphonyMove($id: String!, $state: String!) {
  issueUpdate(id: $id, input: {stateId: $state}) { success issue { id state { name } } }
}"""

COMMENTS = """query SymphonyComments($id: String!, $first: Int!, $after: String) {
  issue(id: $id) {
    id
    comments(first: $first, after: $after) {
      nodes {
        id body createdAt
        user { id displayName app } botActor { name } externalUser { displayName }
      }
      pageInfo { hasNextPage endCursor }
    }
  }
}"""

COMMENT = """query SymphonyComment($id: String!) { comment(id: $id) { id issueId } }"""

CREATE_COMMENT = """mutation SymphonyCreateComment($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id } }
}"""

EDIT_COMMENT = """mutation SymphonyEditComment($id: String!, $body: String!) {
  commentUpdate(id: $id, input: {body: $body}) { success comment { id } }
}"""

OPERATIONS = {
    "SymphonyNewest": NEWEST,
    "SymphonyIssues": BY_STATES,
    "SymphonyIssuesById": BY_IDS,
    "SymphonyBlockers": BLOCKERS,
    "SymphonyLabels": LABELS,
    "SymphonyViewer": VIEWER,
    "SymphonyLook": LOOK,
    "SymphonyStates": STATES,
    "SymphonyMove": MOVE,
    "SymphonyComments": COMMENTS,
    "SymphonyComment": COMMENT,
    "SymphonyCreateComment": CREATE_COMMENT,
    "SymphonyEditComment": EDIT_COMMENT,
}
"""By name."""
