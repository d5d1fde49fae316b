"""All pages."""

from feed_assets.server.ui import calendars, catalog, forms, home, lineage, login, questions, subjects
from feed_assets.server.ui.addresses import HOME
from feed_assets.server.ui.records import Page

PAGES = (
    *forms.FORMS,
    Page(HOME, home.show_home),
    Page(login.LOGIN, login.show_login),
    Page(login.LOGIN, login.log_in, "POST"),
    Page(login.LOGOUT, login.log_out, "POST"),
    Page(login.AT_ISSUER, login.lead_to_issuer),
    Page(login.RETURNED, login.end_log_in),
    Page(f"{HOME}/search", catalog.show_search),
    Page(f"{HOME}/keys", catalog.show_keys),
    Page(f"{HOME}/keys/{{key}}", catalog.show_key),
    Page(f"{HOME}/entities", catalog.show_entities),
    Page(f"{HOME}/words", catalog.show_words),
    Page(f"{HOME}/run/{{run}}", subjects.show_run),
    Page(f"{HOME}/ask", questions.show_questions),
    Page(f"{HOME}/ask/{{operation:path}}", questions.show_question),
    Page(f"{HOME}/lineage/{{kind}}/{{name:path}}", lineage.show_group),
    Page(f"{HOME}/feed/{{name}}/columns", lineage.show_columns),
    Page(f"{HOME}/feed/{{name}}/column/{{column:path}}", lineage.show_columns),
    Page(f"{HOME}/{{kind}}/{{name}}/lineage", lineage.show_lineage),
    Page(f"{HOME}/{{kind}}/{{name}}", subjects.show_entity),
    Page(f"{HOME}/{{kind}}/{{name}}/version/{{version}}", subjects.show_version),
    Page(f"{HOME}/{{kind}}/{{name}}/at/{{instance}}", subjects.show_instance),
    Page(f"{HOME}/{{kind}}/{{name}}/calendar", calendars.show_calendar),
)
"""Of several that match a path, the first is shown."""
