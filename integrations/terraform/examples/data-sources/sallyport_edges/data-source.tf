data "sallyport_edges" "eu" {
  region = "eu"
}

output "up" {
  value = [for edge in data.sallyport_edges.eu.edges : edge.name if edge.state == "up"]
}
