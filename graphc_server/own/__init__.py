"""graphc's own protocol, `/graphc/v1`: for the page, and for scripts."""

from graphc_server.own import events, gallery, jobs, lists, plots

ROUTERS = (jobs.router, plots.router, gallery.router, lists.router, events.router)
