"""Agent Skills of a repository: loads, validates, lists and searches them, and reports malformed ones.

The package depends only on `symphony.frontmatter` and can be used alone. The body of a skill is read only
when a session asks for it. No file content makes a function raise.

    skill_set = load(workspace, SkillOptions())
    block = render(skill_set, SkillOptions())
    comment = comment_body(skill_set.problems)

Instructions are modules of text that are composed for a phase:

    selector = Loader(DirectorySource(workspace, ".symphony/instructions")).load()
    text = selector.select_for_phase("TEST")
"""

from symphony.problem import Problem as Problem
from symphony.problem import Severity as Severity
from symphony.skills.activate import MAX_BODY_BYTES as MAX_BODY_BYTES
from symphony.skills.activate import MAX_FILES as MAX_FILES
from symphony.skills.activate import MAX_FOUND as MAX_FOUND
from symphony.skills.activate import Activation as Activation
from symphony.skills.activate import Activations as Activations
from symphony.skills.activate import ActivationStatus as ActivationStatus
from symphony.skills.activate import AvailableSkills as AvailableSkills
from symphony.skills.activate import ContentError as ContentError
from symphony.skills.activate import SkillContent as SkillContent
from symphony.skills.activate import SkillPath as SkillPath
from symphony.skills.activate import read_content as read_content
from symphony.skills.catalog import CatalogBlock as CatalogBlock
from symphony.skills.catalog import Dropped as Dropped
from symphony.skills.catalog import DropReason as DropReason
from symphony.skills.catalog import NativeListing as NativeListing
from symphony.skills.catalog import dedupe_native as dedupe_native
from symphony.skills.catalog import render as render
from symphony.skills.digest import file_digests as file_digests
from symphony.skills.digest import skill_digests as skill_digests
from symphony.skills.exchange import Bundle as Bundle
from symphony.skills.exchange import BundledFile as BundledFile
from symphony.skills.exchange import BundleError as BundleError
from symphony.skills.exchange import ImportCandidate as ImportCandidate
from symphony.skills.exchange import Installed as Installed
from symphony.skills.exchange import InstallOutcome as InstallOutcome
from symphony.skills.exchange import directory_key as directory_key
from symphony.skills.exchange import draft as draft
from symphony.skills.exchange import find_importable as find_importable
from symphony.skills.exchange import install as install
from symphony.skills.exchange import parse_bytes as parse_bytes
from symphony.skills.exchange import read_bundle as read_bundle
from symphony.skills.exchange import read_file as read_file
from symphony.skills.exchange import suggested_name as suggested_name
from symphony.skills.instructions import EMBEDDED as EMBEDDED
from symphony.skills.instructions import EMBEDDED_SOURCE as EMBEDDED_SOURCE
from symphony.skills.instructions import MAX_FILE_BYTES as MAX_FILE_BYTES
from symphony.skills.instructions import MAX_TOTAL_BYTES as MAX_TOTAL_BYTES
from symphony.skills.instructions import Composition as Composition
from symphony.skills.instructions import DirectorySource as DirectorySource
from symphony.skills.instructions import FilesSource as FilesSource
from symphony.skills.instructions import InstructionOrigin as InstructionOrigin
from symphony.skills.instructions import InstructionSource as InstructionSource
from symphony.skills.instructions import Loader as Loader
from symphony.skills.instructions import Selector as Selector
from symphony.skills.instructions import SourceError as SourceError
from symphony.skills.instructions import check_phases as check_phases
from symphony.skills.instructions import closure_digest as closure_digest
from symphony.skills.lint import FolderElsewhere as FolderElsewhere
from symphony.skills.lint import github_lines as github_lines
from symphony.skills.lint import hint_for as hint_for
from symphony.skills.lint import is_failure as is_failure
from symphony.skills.lint import skills_elsewhere as skills_elsewhere
from symphony.skills.lint import summary as summary
from symphony.skills.lint import text_lines as text_lines
from symphony.skills.lint import unseen_in as unseen_in
from symphony.skills.lint import with_advice as with_advice
from symphony.skills.loader import load as load
from symphony.skills.loader import path_text as path_text
from symphony.skills.loader import resolve_anchor as resolve_anchor
from symphony.skills.manifest import INSTRUCTION_MEANINGS as INSTRUCTION_MEANINGS
from symphony.skills.manifest import MANIFEST_FILE as MANIFEST_FILE
from symphony.skills.manifest import InstructionCode as InstructionCode
from symphony.skills.manifest import Manifest as Manifest
from symphony.skills.manifest import instruction_problem as instruction_problem
from symphony.skills.model import ACTIVATE_TOOL as ACTIVATE_TOOL
from symphony.skills.model import FILE_NAME as FILE_NAME
from symphony.skills.model import MAX_FIELD as MAX_FIELD
from symphony.skills.model import MEANINGS as MEANINGS
from symphony.skills.model import SEARCH_TOOL as SEARCH_TOOL
from symphony.skills.model import ActivationMode as ActivationMode
from symphony.skills.model import Code as Code
from symphony.skills.model import Format as Format
from symphony.skills.model import Incomplete as Incomplete
from symphony.skills.model import LibraryFiles as LibraryFiles
from symphony.skills.model import Root as Root
from symphony.skills.model import Scope as Scope
from symphony.skills.model import Shadowed as Shadowed
from symphony.skills.model import Skill as Skill
from symphony.skills.model import SkillOptions as SkillOptions
from symphony.skills.model import SkillSet as SkillSet
from symphony.skills.model import Validation as Validation
from symphony.skills.model import clean as clean
from symphony.skills.model import is_visible as is_visible
from symphony.skills.model import one_line as one_line
from symphony.skills.model import problem as problem
from symphony.skills.parser import POLICY_PATH as POLICY_PATH
from symphony.skills.parser import ParseOptions as ParseOptions
from symphony.skills.parser import SkillFile as SkillFile
from symphony.skills.parser import clear_cache as clear_cache
from symphony.skills.parser import is_clean_name as is_clean_name
from symphony.skills.parser import parse as parse
from symphony.skills.parser import policy_for_people as policy_for_people
from symphony.skills.report import NamedProblem as NamedProblem
from symphony.skills.report import comment_body as comment_body
from symphony.skills.report import named_problems as named_problems
from symphony.skills.report import resolved_body as resolved_body
from symphony.skills.search import Hit as Hit
from symphony.skills.search import search_skills as search_skills
