data "sallyport_edges" "all" {}

output "up" {
  value = [for edge in data.sallyport_edges.all.edges : edge.name if edge.state == "up"]
}
