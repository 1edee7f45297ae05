terraform import "sallyport_edge.eu[0]" eu-1
