//! Running and recent flows.

use http::Method;
use sallyport_api::{
    EndedFlowPage, EndedFlowQuery, Flow, FlowPage, MAX_PAGE_ITEMS, PreviewPlan, SilentEdge, SocketPlan, SocketStats,
};

use crate::{
    ApiClient, ClientError, MAX_LIST_ITEMS, SocketRef,
    client::{path_segment, query_value},
};

impl ApiClient {
    /// The running flows of the organisation's sockets, and the edges that did not answer.
    ///
    /// # Errors
    /// There is no login, or the token lacks permission.
    pub async fn flows(&self) -> Result<(Vec<Flow>, Vec<SilentEdge>), ClientError> {
        let (mut flows, mut silent) = (Vec::new(), Vec::<SilentEdge>::new());
        let mut after = String::new();
        loop {
            let path = format!("/v1/flows?limit={MAX_PAGE_ITEMS}&after={}", query_value(&after));
            let page: FlowPage = self.get(&path).await?;
            let is_empty = page.items.is_empty();
            flows.extend(page.items);
            for one in page.silent {
                if silent.iter().all(|known| known.edge != one.edge) {
                    silent.push(one);
                }
            }
            match page.next {
                Some(next) if !is_empty && flows.len() <= MAX_LIST_ITEMS => after = next,
                _ => return Ok((flows, silent)),
            }
        }
    }

    /// Ends a flow.
    ///
    /// # Errors
    /// There is no such flow.
    pub async fn kill_flow(&self, id: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/flows/{}", path_segment(id))).await
    }

    /// Recently ended flows: the newest, or those after an earlier answer.
    ///
    /// # Errors
    /// A value is invalid, or there is no such socket.
    pub async fn ended_flows(&self, query: &EndedFlowQuery) -> Result<EndedFlowPage, ClientError> {
        let parameters = [
            ("socket", query.socket.clone()),
            ("limit", query.limit.map(|limit| limit.to_string())),
            ("after", query.after.clone()),
        ];
        let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let text: Vec<_> = given.map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        self.get(&format!("/v1/flows/log?{}", text.join("&"))).await
    }

    /// The plan of a socket, on request with the last hour.
    ///
    /// # Errors
    /// There is no such socket, or it has no limits.
    pub async fn socket_plan(&self, socket: &SocketRef, has_history: bool) -> Result<SocketPlan, ClientError> {
        let query = if has_history { "?history=true" } else { "" };
        self.get(&format!("/v1/sockets/{}/plan{query}", socket.segment())).await
    }

    /// What the plan of a socket would be with other numbers.
    ///
    /// # Errors
    /// The account has no such socket, the socket has no limits, or a number is refused.
    pub async fn preview_plan(&self, socket: &SocketRef, preview: &PreviewPlan) -> Result<SocketPlan, ClientError> {
        self.send(Method::POST, &format!("/v1/sockets/{}/plan", socket.segment()), preview).await
    }

    /// The counters of a socket, summed over all edges.
    ///
    /// # Errors
    /// There is no such socket.
    pub async fn socket_stats(&self, socket: &SocketRef) -> Result<SocketStats, ClientError> {
        self.get(&format!("/v1/sockets/{}/stats", socket.segment())).await
    }
}
